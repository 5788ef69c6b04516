/** One gateway that serves the fixtures of the specification in every language, for tests that compare them. */

import { spawnSync } from 'node:child_process'
import { toFixtureTree } from '../../conformance/fixture-tree.ts'
import { type Answer, type HttpTarget, type SendOptions, send, toHttpTarget } from '../../conformance/http-client.ts'
import { LANGUAGES, type Language } from '../../conformance/languages.ts'
import { createGateway, type Gateway } from '../../lib/index.ts'
import type { LogRecord } from '../../lib/observe/events.ts'
import { makeTree, type Tree } from './tree.ts'

/** Milliseconds the first build on a busy machine may take. */
const BUILD_WAIT_MS = 150_000

const only = process.env.FNGW_TEST_LANGUAGES?.split(',')

/** Those that are tested: all, or the labels named by `FNGW_TEST_LANGUAGES`. */
export const TESTED = LANGUAGES.filter(({ label }) => only === undefined || only.includes(label))

export interface Bed {
  gateway: Gateway
  tree: Tree
  port: number
  languages: readonly Language[]
  /** Languages whose program is missing, with the reason. */
  missing: ReadonlyMap<string, string>
  /** What functions wrote and what the gateway said. */
  logs: LogRecord[]
  send: (options: SendOptions) => Promise<Answer>
  close: () => Promise<void>
}

export async function makeBed(env: Record<string, string> = {}): Promise<Bed> {
  const missing = new Map<string, string>()
  const languages = TESTED.filter(({ label, program }) => {
    const isThere = spawnSync(program, [program === 'go' ? 'version' : '--version']).status === 0
    if (!isThere) missing.set(label, `${program} is not installed`)
    return isThere
  })
  const tree = makeTree(toFixtureTree(languages))
  const gateway = await createGateway({
    functionsRoot: tree.root,
    runtimes: [...new Set(languages.map(({ runtime }) => runtime))],
    workerMemoryMb: 128,
    env,
  })
  const logs: LogRecord[] = []
  gateway.on('log', record => logs.push(record))
  const { port } = await gateway.listen({ port: 0 })
  const target = toHttpTarget(new URL(`http://127.0.0.1:${port}`))
  for (const { label, compiled } of languages) {
    if (!compiled) continue
    for (const folder of ['all', 'short', 'other']) await untilBuilt(target, `/${label}/${folder}`)
  }
  return {
    gateway,
    tree,
    port,
    languages,
    missing,
    logs,
    send: options => send(target, options),
    close: async () => {
      target.close()
      await gateway.close({ timeoutMs: 1000 })
      tree.cleanup()
    },
  }
}

/** Calls wait for a build, but not longer than their timeout. */
async function untilBuilt(target: HttpTarget, path: string): Promise<void> {
  const from = performance.now()
  for (;;) {
    const answer = await send(target, { path, headers: { 'x-do': 'echo' } })
    if (answer.status === 200) return
    const isLate = performance.now() - from > BUILD_WAIT_MS
    if (answer.status !== 503 || isLate) throw new Error(`${path}: ${answer.status} ${answer.text}`)
  }
}
