/** A Lua runtime with functions in a temporary tree, for tests. */

import type { FunctionVersion, Policy } from '../../lib/core/catalog.ts'
import { systemClock } from '../../lib/core/clock.ts'
import type { GatewayError } from '../../lib/core/errors.ts'
import { RuntimeCall } from '../../lib/runtime/call.ts'
import { Dispatcher } from '../../lib/runtime/dispatcher.ts'
import { LuaRuntime } from '../../lib/runtime/lua-runtime.ts'
import { makeFn, TEST_EVENT } from '../helpers/fn.ts'
import { makeTree, type Tree, type TreeEntry } from '../helpers/tree.ts'

export interface LuaResult {
  header: string
  // biome-ignore lint/suspicious/noExplicitAny: the JSON of a reply, of whatever shape the test expects
  head: any
  body: Buffer
  error: GatewayError | null
  stdout: string
  stderr: string
}

class TestCall extends RuntimeCall {
  readonly result: Promise<LuaResult>
  settled = 0
  private settle!: (result: LuaResult) => void
  private readonly output = { stdout: '', stderr: '' }

  constructor(fn: FunctionVersion) {
    super(fn)
    this.result = new Promise(resolve => {
      this.settle = resolve
    })
  }

  override onReply(header: string, body: Buffer): void {
    this.finish({ header, head: JSON.parse(header), body: Buffer.from(body), error: null })
  }

  override onError(error: GatewayError): void {
    this.finish({ header: '', head: null, body: Buffer.alloc(0), error })
  }

  override onChunk(): void {}
  override onEnd(): void {}

  override onLog(stream: 'stdout' | 'stderr', text: string): void {
    this.output[stream] += text
  }

  private finish(result: Omit<LuaResult, 'stdout' | 'stderr'>): void {
    this.settled++
    this.settle({ ...result, ...this.output })
  }
}

const CALL = { ...TEST_EVENT, ts: 1_700_000_000_123, method: 'POST', path: '/fn', raw_path: '/fn' }

export interface LuaSite {
  tree: Tree
  runtime: LuaRuntime
  dispatcher: Dispatcher
  /** Functions by name. */
  fns: Map<string, FunctionVersion>
  logs: string[]
  failures: string[]
  /** Source files that threads told of, below the root. */
  files: string[]
  /** Adds or replaces a function: `name/handler.lua`. */
  add(name: string, source: string, policy?: Partial<Policy>, fields?: Partial<FunctionVersion>): FunctionVersion
  /** Tells the runtime of all functions there are. */
  retain(): void
  start(name: string, fields?: object, body?: string | Uint8Array | null): TestCall
  call(name: string, fields?: object, body?: string | Uint8Array | null): Promise<LuaResult>
  /** Ends calls, at most so many ms later, and threads. */
  closeRuntime(timeoutMs: number): Promise<void>
  close(): Promise<void>
}

export function makeLuaSite(
  sources: Record<string, string>,
  options: {
    memoryMb?: number
    totalMemoryMb?: number
    files?: Record<string, TreeEntry>
    policy?: Partial<Policy>
  } = {},
): LuaSite {
  const tree = makeTree(options.files)
  const fns = new Map<string, FunctionVersion>()
  const logs: string[] = []
  const failures: string[] = []
  const files: string[] = []
  const workerMemoryMb = options.memoryMb ?? 128
  const runtime = new LuaRuntime(
    { workerMemoryMb, luaMemoryMb: options.totalMemoryMb ?? 1024 },
    {
      functionsRoot: tree.root,
      production: false,
      toContext: fn => ({ runtime: 'lua', function_name: fn.name, timeout_ms: fn.policy.timeoutMs }),
      toPackDirs: () => [],
    },
  )
  const dispatcher = new Dispatcher({
    tenancy: null,
    clock: systemClock,
    runtimes: new Map([['lua', runtime]]),
    onFiles: (fn, found) => files.push(...found.map(file => `${fn.name} ${file.slice(tree.root.length + 1)}`)),
    onLog: (fn, stream, text) => logs.push(`${fn.name} ${stream} ${text}`),
    onFailure: (fn, error) => failures.push(`${fn.name} ${error.message}`),
  })
  let revision = 0
  const site: LuaSite = {
    tree,
    runtime,
    dispatcher,
    fns,
    logs,
    failures,
    files,
    add: (name, source, policy = {}, fields = {}) => {
      tree.write({ [`${name}/handler.lua`]: source })
      const fn = makeFn({
        runtime: 'lua',
        name,
        fnDir: tree.path(name),
        entryPath: tree.path(`${name}/handler.lua`),
        entryFile: `${name}/handler.lua`,
        signature: String(++revision),
        ...fields,
        policy: { ...options.policy, ...policy },
      })
      fns.set(name, fn)
      return fn
    },
    retain: () => dispatcher.retain(new Map([...fns.values()].map(fn => [fn.key, fn]))),
    start: (name, fields = {}, body = null) => {
      const call = new TestCall(fns.get(name)!)
      call.header = JSON.stringify({ ...CALL, ...fields })
      call.body = body === null ? null : Buffer.from(body as Uint8Array)
      dispatcher.setOf(call.fn).dispatch(call)
      return call
    },
    call: (name, fields, body) => site.start(name, fields, body).result,
    closeRuntime: async timeoutMs => {
      await dispatcher.close(timeoutMs)
      await runtime.close()
    },
    close: async () => {
      await site.closeRuntime(1000)
      tree.cleanup()
    },
  }
  for (const [name, source] of Object.entries(sources)) site.add(name, source)
  site.retain()
  return site
}
