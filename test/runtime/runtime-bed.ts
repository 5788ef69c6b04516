/**
 * Real runtimes over a temporary tree of handlers, without HTTP and discovery:
 *
 *   const bed = makeRuntimes({ 'a.js': 'export const handler = () => 1' }, { settings: { runtimes: ['node'] } })
 *   t.teardown(() => bed.close())
 *   const outcome = await bed.call(bed.fn('a.js'))      // { status, header, text, error, ... }
 */

import { basename, dirname } from 'node:path'
import { resolveSettings } from '../../lib/config/settings.ts'
import type { FunctionVersion, Policy } from '../../lib/core/catalog.ts'
import { systemClock } from '../../lib/core/clock.ts'
import type { GatewayError } from '../../lib/core/errors.ts'
import { RUNTIME_OF_EXTENSION, type RuntimeName } from '../../lib/core/identity.ts'
import { RuntimeCall } from '../../lib/runtime/call.ts'
import type { DaemonEvent } from '../../lib/runtime/daemon.ts'
import type { RuntimeHealth } from '../../lib/runtime/runtime.ts'
import { Runtimes, type RuntimesOptions } from '../../lib/runtime/runtimes.ts'
import { makeFn, TEST_EVENT } from '../helpers/fn.ts'
import { makeTree, type Tree, type TreeEntry } from '../helpers/tree.ts'
import type { Fields } from '../helpers/worker-client.ts'

export interface Outcome {
  error: GatewayError | null
  header: Fields
  body: Buffer
  text: string
  stdout: string
  stderr: string
}

/** A call that collects its answer. */
export class TestCall extends RuntimeCall {
  readonly outcome: Promise<Outcome>
  private readonly answer: Outcome = {
    error: null,
    header: {},
    body: Buffer.alloc(0),
    text: '',
    stdout: '',
    stderr: '',
  }
  private readonly parts: Buffer[] = []
  private settle: (outcome: Outcome) => void = () => {}

  constructor(fn: FunctionVersion, header: Fields = {}, body: Buffer | null = null) {
    super(fn)
    const path = String(header.path ?? '/')
    this.header = JSON.stringify({
      ...TEST_EVENT,
      path,
      raw_path: path,
      ...header,
    })
    this.body = body
    this.outcome = new Promise(resolve => {
      this.settle = resolve
    })
  }

  override onReply(header: string, body: Buffer, stream: boolean): void {
    this.answer.header = JSON.parse(header)
    this.parts.push(Buffer.from(body))
    if (!stream) this.end(null)
  }

  override onChunk(body: Buffer): void {
    this.parts.push(Buffer.from(body))
    this.host?.grant(this, body.length)
  }

  override onEnd(error: GatewayError | null): void {
    this.end(error)
  }

  override onLog(stream: 'stdout' | 'stderr', text: string): void {
    this.answer[stream] += text
  }

  override onError(error: GatewayError): void {
    this.end(error)
  }

  private end(error: GatewayError | null): void {
    this.answer.error = error
    this.answer.body = Buffer.concat(this.parts)
    this.answer.text = this.answer.body.toString()
    this.settle(this.answer)
  }
}

export interface RuntimeBed {
  runtimes: Runtimes
  tree: Tree
  /** What workers wrote outside calls, by function key. */
  logs: Map<string, string>
  /** Load failures and unexpected ends, as `key: message`. */
  failures: string[]
  events: DaemonEvent[]
  /** A function of a file in the tree; the catalog then holds all made so far. */
  fn(file: string, policy?: Partial<Policy>, fields?: Partial<FunctionVersion>): FunctionVersion
  health(name: RuntimeName): RuntimeHealth
  call(fn: FunctionVersion, header?: Fields, body?: Buffer | string | null): Promise<Outcome>
  close(): Promise<void>
}

export function makeRuntimes(
  entries: Record<string, TreeEntry>,
  options: Partial<Omit<RuntimesOptions, 'settings'>> & { settings?: Partial<RuntimesOptions['settings']> } = {},
): RuntimeBed {
  const tree = makeTree(entries)
  const logs = new Map<string, string>()
  const failures: string[] = []
  const events: DaemonEvent[] = []
  const functions = new Map<string, FunctionVersion>()
  const { settings, ...others } = options
  const runtimes = new Runtimes({
    settings: {
      ...resolveSettings({ options: { functionsRoot: tree.root }, cwd: '/' }).settings,
      runtimes: ['node'],
      runtimesExplicit: true,
      isolationFiles: 'refuse',
      ...settings,
    },
    clock: systemClock,
    hostEnv: process.env,
    toContext: fn => ({
      runtime: fn.runtime,
      function_name: fn.name,
      timeout_ms: fn.policy.timeoutMs,
      max_body_bytes: fn.policy.maxBodyBytes,
    }),
    toPackDirs: () => [],
    onLog: (fn, _stream, text) => logs.set(fn.key, (logs.get(fn.key) ?? '') + text),
    onFailure: (fn, error) => failures.push(`${fn.key}: ${error.message}`),
    onEvent: event => events.push(event),
    ...others,
  })
  return {
    runtimes,
    tree,
    logs,
    failures,
    events,
    fn: (file, policy = {}, fields = {}) => {
      const runtime = RUNTIME_OF_EXTENSION.get(file.slice(file.lastIndexOf('.')))!
      const name = basename(file).replace(/\.\w+$/, '')
      const fn = makeFn({
        runtime,
        name,
        kind: 'file',
        fnDir: dirname(tree.path(file)),
        entryPath: tree.path(file),
        entryFile: file,
        ...fields,
        policy,
      })
      functions.set(fn.key, fn)
      runtimes.retain(new Map(functions))
      return fn
    },
    call: (fn, header, body = null) => {
      const call = new TestCall(fn, header, typeof body === 'string' ? Buffer.from(body) : body)
      runtimes.dispatcher.setOf(fn).dispatch(call)
      return call.outcome
    },
    health: name => runtimes.byName.get(name)!.health(),
    close: async () => {
      await runtimes.close(0)
      tree.cleanup()
    },
  }
}
