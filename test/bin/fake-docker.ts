/** A client of containers for tests of container mode, see fake-docker.mjs. */

import { chmodSync, readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { FNGW } from '../helpers/cli.ts'
import { makeTree } from '../helpers/tree.ts'

export interface FakeSettings {
  /** What `info` prints, and the code it ends with. */
  info?: unknown
  infoCode?: number
  infoError?: string
  createError?: string
  /** A command that does not end by itself. */
  hangs?: 'info' | 'create'
  /** Command line of what runs in a container, before its arguments; default `fngw`. */
  inside?: string[]
}

interface FakeContainer {
  name: string
  env: Record<string, string>
  publish: string[]
  mounts: string[]
  workdir: string
  image: string
  args: string[]
  pid: number
}

export interface FakeDocker {
  /** Full path of the client. */
  program: string
  env: Record<string, string>
  /** Command lines so far. */
  calls: () => string[][]
  /** The container made last. */
  last: () => FakeContainer
  /** Names of those that are there. */
  containers: () => string[]
  /** Process of one that runs. */
  pidOf: (name: string) => number
  cleanup: () => void
}

const SCRIPT = fileURLToPath(new URL('fake-docker.mjs', import.meta.url))

export function makeFakeDocker(settings: FakeSettings = {}): FakeDocker {
  const tree = makeTree({ 'state/settings': { json: settings } })
  const program = tree.path('docker')
  tree.write({ docker: `#!/bin/sh\nexec "${process.execPath}" "${SCRIPT}" "$@"\n` })
  chmodSync(program, 0o755)
  const state = tree.path('state')
  const read = (name: string) => JSON.parse(readFileSync(`${state}/${name}`, 'utf8'))
  return {
    program,
    env: {
      FN_DOCKER_BIN: program,
      FAKE_DOCKER: state,
      FAKE_INSIDE: JSON.stringify(FNGW),
    },
    calls: () =>
      readFileSync(`${state}/calls`, 'utf8')
        .trim()
        .split('\n')
        .map(line => JSON.parse(line)),
    last: () => read('last'),
    containers: () =>
      readdirSync(state)
        .filter(name => name.endsWith('.json'))
        .map(name => name.slice(0, -'.json'.length)),
    pidOf: name => (read(`${name}.json`) as FakeContainer).pid,
    cleanup: tree.cleanup,
  }
}
