/** The line at the top: which daemon this is, whether the page hears it, and the way in. */

const SAYS = {
  connecting: "connecting",
  live: "live",
  lost: "connection lost, trying again",
  forbidden: "a token is needed",
};

/**
 * @param {HTMLElement} header
 * @param {import("../app.js").Context} ctx
 */
export function mount(header, { store, access, format, toasts }) {
  const link = header.querySelector("#link");
  const daemon = header.querySelector("#daemon");
  const button = header.querySelector("#access");
  let version = null;
  let asked = false;

  button.addEventListener("click", access.askForToken);

  store.subscribe(["link"], (state) => {
    link.dataset.state = state;
    link.querySelector(".says").textContent = SAYS[state];
    if (state === "forbidden" && !asked) {
      asked = true; // once: afterwards the button is there
      access.askForToken();
    }
  });

  store.subscribe(["status"], (status) => {
    if (!status) return;
    document.title = title(status);
    daemon.textContent = `${status.version} · ${status.listen} · up ${format.duration(status.uptime_s)}`;
    if (version !== null && version !== status.version) {
      const detail = `The daemon is now ${status.version}. Load this page again to have its own.`;
      toasts.problem({ title: "Another version", detail });
    }
    version = status.version;
  });

  store.subscribe(["access"], (found) => {
    button.textContent = found?.actor ? `Access: ${found.actor}` : "Access";
  });
}

/** Which model serves, so that the tab of the browser says it. */
function title(status) {
  const engine = status.engines.find((one) => one.state === "ready" && one.arm);
  return engine ? `${engine.arm.profile}@${engine.arm.depth} · mtpd` : "mtpd";
}
