/** What the page knows, by name; who shows a part of it is told when it changes. */

/**
 * The names: `status`, `models`, `gpu`, `access` as the API answers (null before), `link`
 * (connecting, live, lost, forbidden), `finished`, the latest requests, newest first, and
 * `operation`, the one that runs or ended last.
 * @typedef {{get: (name: string) => any, set: (name: string, value: any) => void,
 *   subscribe: (names: string[], listener: (...values: any[]) => void) => () => void}} Store
 */

/**
 * @param {Record<string, any>} initial
 * @returns {Store}
 */
export function createStore(initial) {
  const values = { ...initial };
  const subscriptions = new Set();

  const call = ({ names, listener }) => listener(...names.map((name) => values[name]));

  return {
    get: (name) => values[name],
    set(name, value) {
      values[name] = value;
      for (const one of subscriptions) if (one.names.includes(name)) call(one);
    },
    subscribe(names, listener) {
      const one = { names, listener };
      subscriptions.add(one);
      call(one);
      return () => subscriptions.delete(one);
    },
  };
}
