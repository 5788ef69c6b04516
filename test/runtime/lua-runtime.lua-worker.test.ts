import t from 'tap'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { RuntimeCall } from '../../lib/runtime/call.ts'
import { serveTree } from '../helpers/gateway-bed.ts'
import { makeLuaSite } from './lua-site.ts'

t.setTimeout(120_000)

const KIB = 1024
/** The longest body that travels as text: it is copied on its way. */
const LONGEST_TEXT = 16 * KIB
const HANDLER = `function handler(event)
  local n = tonumber(event.query.bytes)
  return { status = 200, headers = { ["content-type"] = "text/plain" }, body = string.rep(event.query.text, n):sub(1, n) }
end
`

/** A call that keeps the view of its answer's bytes beyond the call in which it gets them. */
class KeepingCall extends RuntimeCall {
  readonly told: Promise<void>
  #settle!: (error: Error | null) => void
  view: Buffer | null = null
  /** The bytes as they were then. */
  copy = Buffer.alloc(0)

  constructor(fn: FunctionVersion) {
    super(fn)
    this.told = new Promise((resolve, reject) => {
      this.#settle = error => (error === null ? resolve() : reject(error))
    })
  }

  override onReply(_header: string, body: Buffer): void {
    this.view = body
    this.copy = Buffer.from(body)
    this.#settle(null)
  }

  override onError(error: Error): void {
    this.#settle(error)
  }

  override onChunk(): void {}
  override onEnd(): void {}
  override onLog(): void {}
}

t.test('[core/byte-pool.10] a long answer is whole while it is told, and its memory is gone right after', async t => {
  const site = makeLuaSite({ text: HANDLER })
  t.teardown(() => site.close())
  const sizes = [1, LONGEST_TEXT - 1, LONGEST_TEXT, LONGEST_TEXT + 1, 1024 * KIB, 3 * 1024 * KIB + 7]
  // All at once: several answers come in one message, and the end of one must not be that of another.
  const calls = sizes.map((bytes, at) => {
    const call = new KeepingCall(site.fns.get('text')!)
    const text = `${at} ü\xff`
    call.header = JSON.stringify({ method: 'GET', query: { bytes: String(bytes), text }, headers: {} })
    site.dispatcher.setOf(call.fn).dispatch(call)
    return { call, bytes, text }
  })
  for (const { call, bytes, text } of calls) {
    await call.told
    const whole = Buffer.alloc(bytes, text)
    t.ok(call.copy.equals(whole), `${bytes} bytes`)
    // `onReply` was called in a turn that is over now.
    if (bytes > LONGEST_TEXT) t.equal(call.view!.buffer.byteLength, 0, `the memory of ${bytes} bytes is given back`)
    else t.ok(call.view!.equals(whole), 'text has memory of its own, which is the collector’s')
  }
})

t.test('[core/byte-pool.10] whoever takes an answer later has a copy: slow clients, and calls inside', async t => {
  const config = JSON.stringify({ timeout_ms: 60_000, max_concurrency: 0 })
  const { url, gateway } = await serveTree(t, { 'text/handler.lua': HANDLER, 'text/fn.config.json': config })
  // More than the system holds for a client that reads nothing.
  const bytes = 8 * 1024 * KIB
  const ask = (text: string) => `/text?bytes=${bytes}&text=${text}`
  const slow = await Promise.all(['ab', 'cde'].map(text => fetch(url + ask(text))))
  const inside = await gateway.invoke('text', { query: { bytes: String(bytes), text: 'inside' } })
  for (const text of ['fast', 'faster', 'fastest']) {
    const answer = Buffer.from(await (await fetch(url + ask(text))).arrayBuffer())
    t.ok(answer.equals(Buffer.alloc(bytes, text)), text)
  }
  for (const [at, text] of ['ab', 'cde'].entries()) {
    const answer = Buffer.from(await slow[at]!.arrayBuffer())
    t.ok(answer.equals(Buffer.alloc(bytes, text)), `${text}, whose client reads it last`)
  }
  t.ok(Buffer.from(inside.body).equals(Buffer.alloc(bytes, 'inside')), 'inside')
})
