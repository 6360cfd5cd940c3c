/** Asking the daemon. The token is in the memory of this page and nowhere else. */

export const BASE = "/mtpd/v1";

/** A refusal of the daemon (RFC 9457, or OpenAI's shape), or that it was not reached. */
export class Refused extends Error {
  /**
   * @param {{status: number, slug?: string, title?: string, detail: string, hint?: string}} told
   */
  constructor({ status, slug = "", title = "", detail, hint = "" }) {
    super(detail);
    Object.assign(this, { status, slug, title, detail, hint });
  }

  /** @returns {boolean} whether another token could change it */
  get needsAccess() {
    return this.status === 401 || this.slug === "token-scope";
  }
}

/**
 * @typedef {{
 *   get: (path: string) => Promise<any>,
 *   post: (path: string, body: object) => Promise<any>,
 *   del: (path: string) => Promise<any>,
 *   open: (url: string, options?: RequestInit) => Promise<Response>,
 *   setToken: (token: string) => void,
 *   hasToken: () => boolean,
 * }} Api
 */

/** @returns {Api} */
export function createApi() {
  let token = "";

  /** A response that was accepted; its body is not read yet. */
  async function open(url, options = {}) {
    const headers = { ...options.headers };
    if (token) headers.Authorization = `Bearer ${token}`;
    let response;
    try {
      response = await fetch(url, { cache: "no-store", ...options, headers });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refused({ status: 0, title: "Not reached", detail: "The daemon does not answer." });
    }
    if (!response.ok) throw await refusal(response);
    return response;
  }

  const json = async (path, options) => (await open(BASE + path, options)).json();

  return {
    open,
    get: (path) => json(path),
    post: (path, body) =>
      json(path, {
        method: "POST",
        headers: { "Content-Type": "application/json", "Idempotency-Key": newKey() },
        body: JSON.stringify(body),
      }),
    del: (path) => json(path, { method: "DELETE" }),
    setToken(secret) {
      token = secret.trim();
    },
    hasToken: () => token !== "",
  };
}

/** Not `randomUUID`, which plain HTTP from another machine has not. */
function newKey() {
  const random = crypto.getRandomValues(new Uint8Array(16));
  return [...random].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function refusal(response) {
  const status = response.status;
  let body = {};
  try {
    body = await response.json();
  } catch {
    // No JSON: the status is all there is.
  }
  const openai = body.error;
  if (openai && typeof openai === "object") {
    const slug = String(openai.code ?? "").replaceAll("_", "-");
    return new Refused({ status, slug, detail: openai.message ?? `Status ${status}.` });
  }
  return new Refused({
    status,
    slug: String(body.type ?? "").split(":").at(-1),
    title: body.title,
    detail: body.detail ?? `The daemon answered with status ${status}.`,
    hint: body.hint,
  });
}
