/**
 * Runs the global functions `test_...` of Lua test files, each in a separate state with the limits of the function. A test fails
 * when it raises an error, as `assert` does. Page: bin/test.
 * Usage: node run-tests.mjs '{"report": ..., "root": ..., "dir": ..., "files": [...], "keys": [...], "timeoutMs": ..., "memoryMb": ...}'
 */

import { readFileSync, writeFileSync } from 'node:fs'
import { relative } from 'node:path'
import { Budget } from './budget.mjs'
import { LuaFunction, prepare } from './function.mjs'
import { Guard } from './guard.mjs'
import { LoadError } from './loader.mjs'
import { createTestModule } from './testing/fngw-test.mjs'
import { loadVm } from './vm.mjs'

const { report, root, dir, files, keys, timeoutMs, memoryMb } = JSON.parse(process.argv[2] ?? '{}')
const MIB = 1024 * 1024
const TEST = /^\s*(?:function\s+(test\w*)\s*\(|(test\w*)\s*=\s*function\b)/gm
const EVENT = JSON.stringify({
  ...{ id: 'test', ts: 0, method: 'GET', path: '/', raw_path: '/', params: {}, query: {}, headers: {} },
})

const shared = new SharedArrayBuffer(3 * Int32Array.BYTES_PER_ELEMENT)
new Int32Array(shared).set([0, 1, memoryMb * 1024])
const guard = new Guard(memoryMb * MIB, new Budget(shared, new Int32Array(2)), () => {})
const vm = loadVm(guard)
const addTestModule = createTestModule(vm, guard)
const env = Object.fromEntries(keys.map((/** @type {string} */ key) => [key, process.env[key] ?? '']))
const counts = { passed: 0, failed: 0, skipped: 0 }

/**
 * @param {string} entry
 * @param {string} name
 * @returns {{ message: string } | null} why it failed
 */
function runTest(entry, name) {
  /** @type {{ code: string, message: string } | null} */
  let failure = null
  const prepared = prepare({
    vm,
    guard,
    send: (kind, _id, text, body) => {
      if (kind === 'error') failure = JSON.parse(text)
      else if (kind === 'stdout' || kind === 'stderr') process.stdout.write(body || text)
    },
  })
  addTestModule(prepared.state)
  try {
    guard.begin(performance.now() + timeoutMs)
    const start = { key: 'lua/test', name: 'test', version: null, root, dir, entry, adapter: null, env }
    const context = { timeout_ms: timeoutMs }
    new LuaFunction(prepared, { ...start, callable: { names: [name] }, context }, 0).serve(1, EVENT, null)
  } catch (error) {
    if (!(error instanceof LoadError)) throw error
    return error.failure
  } finally {
    guard.end(performance.now())
  }
  // What a test returns need not be a response.
  const { code = 'contract' } = /** @type {any} */ (failure ?? {})
  return code === 'contract' ? null : failure
}

for (const file of files) {
  process.stdout.write(`${relative(root, file)}\n`)
  const names = [...readFileSync(file, 'utf8').matchAll(TEST)].map(([, named, assigned]) => named ?? assigned ?? '')
  for (const name of names) {
    const failure = runTest(file, name)
    if (failure === null) counts.passed += 1
    else counts.failed += 1
    process.stdout.write(failure === null ? `  ok      ${name}\n` : `  failed  ${name}: ${failure.message}\n`)
  }
}
writeFileSync(report, JSON.stringify(counts))
if (counts.failed > 0) process.exitCode = 1
