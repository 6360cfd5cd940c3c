// A classic script in the head, so that the page is never painted in the wrong theme first.
// lib/theming.js changes the theme later.
"use strict";
try {
  const theme = localStorage.getItem("mtpd.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage is forbidden: the system's theme holds.
}
