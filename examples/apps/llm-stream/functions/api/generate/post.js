// @summary Generate text as server-sent events
import { setTimeout as sleep } from 'node:timers/promises'
import { generate } from './_model.js'

/** JSON escapes line breaks, so a text cannot end its event or begin another. */
const toEvent = (name, data) => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`

async function* stream({ prompt, max_tokens: most = 60, seed = Date.now() }, pauseMs) {
  let count = 0
  for (const word of generate(prompt, seed)) {
    if (count === most) break
    // As fast as the model of a real service. When the client disconnects, the gateway closes this generator.
    await sleep(pauseMs)
    yield toEvent('token', { text: count === 0 ? word : ` ${word}` })
    count++
  }
  yield toEvent('done', { tokens: count })
}

export const handler = ({ body, env }) => ({
  headers: { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' },
  // schema.json has checked the body.
  body: stream(JSON.parse(body), 1000 / Number(env.TOKENS_PER_SECOND)),
})
