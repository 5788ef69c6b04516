/**
 * A thread that serves one Lua function. It starts without one, so that a spare thread has everything loaded.
 *
 *   in   { start?: JSON text, calls: [id, header, body | null, ...] }
 *   out  [kind, id, text, body, ...]; bodies that are texts have one character per byte
 *
 * Page: runtime/lua-runtime.
 */

import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parentPort, workerData } from 'node:worker_threads'
import { Budget } from './budget.mjs'
import { LuaFunction, prepare } from './function.mjs'
import { Garbage } from './garbage.mjs'
import { Guard } from './guard.mjs'
import { LoadError } from './loader.mjs'
import { toLatin1 } from './text.mjs'
import { loadVm } from './vm.mjs'

/** Milliseconds after which an answer no longer waits for those of the calls behind it. */
const FLUSH_MS = 1
/**
 * Functions that a spare thread loads, and calls that it makes, so that the engine has compiled the code before the first real one.
 * With ten loads and more the engine settles on code that takes three times as long for a body of 64 KiB; up to eight it does not.
 */
const WARM_UP_LOADS = 3
const WARM_UP_CALLS = 20

const port = /** @type {import('node:worker_threads').MessagePort} */ (parentPort)
/** @type {unknown[]} */
let out = []
/** @type {ArrayBuffer[]} */
let transfers = []
let flushedAt = 0
/** Calls begun and KiB held, in memory shared with the gateway: it can read them even when the thread hangs. */
const progress = new Int32Array(workerData.progress)
const guard = new Guard(workerData.memoryBytes, new Budget(workerData.memory, progress), () => {
  if (out.length > 0) flush(performance.now())
})
const garbage = new Garbage(guard.collect, setTimeout)
const vm = loadVm(guard)
warmUp()
const prepared = prepare({ vm, guard, send })
/** @type {LuaFunction | null} */
let served = null

/** @param {number} now */
function flush(now) {
  flushedAt = now
  if (out.length === 0) return
  port.postMessage(out, transfers)
  out = []
  transfers = []
}

/**
 * @param {string} kind
 * @param {number} id
 * @param {string} text
 * @param {string | Uint8Array} [body]
 * @param {boolean} [isOwn] - nobody else has the bytes
 */
function send(kind, id, text, body = '', isOwn = false) {
  if (typeof body === 'string') out.push(kind, id, text, body)
  else if (body.byteLength <= vm.longBody) out.push(kind, id, text, toLatin1(body))
  else {
    // A copy, because what is transferred is gone: the handler may keep the string.
    const copy = isOwn && body.buffer.byteLength === body.byteLength ? body : Uint8Array.prototype.slice.call(body)
    transfers.push(/** @type {ArrayBuffer} */ (copy.buffer))
    out.push(kind, id, text, copy)
  }
}

/** The memory is used up: the error of the call that did it is sent, and the thread ends. */
function die() {
  send('dying', 0, guard.condemned)
  flush(0)
  process.exit(1)
}

/** @param {string} start - JSON text */
function load(start) {
  try {
    const fn = JSON.parse(start)
    guard.begin(performance.now() + workerData.loadTimeoutMs)
    served = new LuaFunction(prepared, fn, workerData.graceMs)
    send('ready', 0, toFiles(served.takeFiles()))
  } catch (error) {
    const failure = error instanceof LoadError ? error.failure : { code: 'load', message: `cannot load: ${error}` }
    // The gateway ends a thread that cannot load its function.
    send('failed', 0, JSON.stringify(failure))
  }
  // At once: the time of the first call counts from here.
  flush(performance.now())
}

/** @param {string[]} files */
function toFiles(files) {
  return JSON.stringify({ files })
}

port.on('message', ({ start, calls }) => {
  if (start !== undefined) load(start)
  if (served !== null) {
    for (let i = 0; i < calls.length; i += 3) {
      Atomics.add(progress, 0, 1)
      const body = calls[i + 2]
      served.serve(calls[i], calls[i + 1], body)
      if (body !== null) garbage.note(body.byteLength)
      if (guard.condemned !== '') die()
      if (served.hasNewFiles) send('loaded', 0, toFiles(served.takeFiles()))
      const now = performance.now()
      if (now - flushedAt > FLUSH_MS) flush(now)
    }
  }
  const now = performance.now()
  guard.end(now)
  flush(now)
  garbage.note(guard.takeMade())
  garbage.tidy()
})

function warmUp() {
  const dir = dirname(fileURLToPath(import.meta.url))
  const fn = {
    key: 'lua/warm-up',
    name: 'warm-up',
    version: null,
    root: dir,
    dir,
    entry: join(dir, 'warm-up.lua'),
    callable: { names: ['handler'] },
    adapter: null,
    env: {},
    context: { timeout_ms: 1000 },
  }
  const load = () => new LuaFunction(prepare({ vm, guard, send: () => {} }), fn, 0)
  for (let i = 1; i < WARM_UP_LOADS; i++) toFiles(load().takeFiles())
  const practice = load()
  for (let i = 0; i < WARM_UP_CALLS; i++) {
    const query = { name: `n${i}`, ...(i % 2 === 0 ? { envelope: '1' } : {}) }
    const header = {
      id: `w${i}`,
      ts: 1.5e12,
      method: 'POST',
      path: '/',
      raw_path: '/',
      params: { id: '1' },
      query,
      headers: {},
    }
    practice.serve(i, JSON.stringify(header), Buffer.from('body'))
  }
  guard.end(performance.now())
}
