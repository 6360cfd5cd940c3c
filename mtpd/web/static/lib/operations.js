/** Starting what takes long, and saying what came of it. */

/**
 * @param {{api: import("./api.js").Api, live: import("./live.js").Live,
 *   toasts: ReturnType<typeof import("./toast.js").createToasts>}} parts
 * @returns {(path: string, body: object, what: string) => Promise<void>} `what` is a clause
 *   such as "switch to alpha"
 */
export function createOperations({ api, live, toasts }) {
  /** The names of the operations that this page has started, by id. */
  const followed = new Map();

  function look(operation) {
    const what = followed.get(operation.id);
    if (!what || operation.state === "queued" || operation.state === "running") return;
    followed.delete(operation.id);
    if (operation.state === "failed" && operation.error) {
      toasts.problem({ ...operation.error, title: `${what} failed` });
    } else {
      toasts.say(`${what}: ${operation.state}`);
    }
  }

  live.on("operation.changed", ({ event }) => look(event.operation));
  live.on("stream.open", async () => {
    // What ended while the stream was away is told by no event.
    for (const id of followed.keys()) {
      try {
        look(await api.get(`/operations/${id}`));
      } catch (error) {
        if (error.status) followed.delete(id); // else nobody answered: it is asked again
      }
    }
  });

  return async (path, body, what) => {
    try {
      const operation = await api.post(path, body);
      followed.set(operation.id, what);
      if (operation.state === "queued" || operation.state === "running") {
        toasts.say(`${what}: ${operation.state}`);
      }
      look(operation);
    } catch (error) {
      toasts.problem(error);
    }
  };
}
