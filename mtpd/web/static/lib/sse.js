/** Server-sent events out of a fetch: an EventSource can show no token. */

/**
 * Events of a response, one by one; a field `event` is "message" where none was sent.
 * @param {Response} response
 * @returns {AsyncGenerator<{event: string, data: string, id: string | null}>}
 */
export async function* eventsOf(response) {
  for await (const block of blocks(response)) {
    const found = { event: "message", data: [], id: null };
    for (const line of block.split("\n")) {
      // With "s" U+2028 and U+2029, which may stand in JSON as they are, end no line.
      const [, field, value] = /^(\w*):? ?(.*)$/s.exec(line) ?? [];
      if (field === "data") found.data.push(value);
      else if (field === "event" || field === "id") found[field] = value;
    }
    // A block of comments alone is a ping; it is told, as it shows that the daemon lives.
    yield { ...found, data: found.data.join("\n") };
  }
}

async function* blocks(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let kept = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      // A "\r" at the end of a part may be the half of a "\r\n": it waits for the next part.
      kept = (kept + value).replace(/\r\n/g, "\n");
      const found = kept.split("\n\n");
      kept = found.pop();
      yield* found;
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
