-- Version 5. What the idle card draws: energy per token is shown with and without it.

ALTER TABLE measurements ADD COLUMN power_idle_w REAL;
