/**
 * Tests that also run in another version of Node, because versions differ there: Node and TypeScript handlers, HTTP, daemons and
 * V8 flags. test/package.test.ts runs the installed program and an embedding program in both versions. The program is fetched from
 * the package registry once; where that is not possible, the reason is printed.
 */

import { execFile } from 'node:child_process'
import { existsSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'

const MAJOR = 24
const FETCH_TIMEOUT_MS = 180_000
const FILES = [
  'test/e2e/http.test.ts',
  'test/e2e/streaming.test.ts',
  'test/gateway/gateway.host-process.test.ts',
  'test/http/respond.test.ts',
  'test/http/server.test.ts',
  'test/runtime/daemon.test.ts',
  'test/runtimes/conformance.test.ts',
  'test/runtimes/node.test.ts',
]
/** Languages of the conformance table whose handlers this version runs: those of the others do the same in any. */
const LANGUAGES = 'js,cjs,ts'

/**
 * @param {string} root - of the project
 * @returns {Promise<{ runs: { file: string, program: string, version: string, env: Record<string, string> }[], note: string | null }>}
 */
export async function otherVersionRuns(root) {
  if (Number(process.versions.node.split('.')[0]) === MAJOR) return { runs: [], note: null }
  const { program, problem } = await findNode(root)
  if (program === null) return { runs: [], note: `not run again in Node ${MAJOR}: ${problem}` }
  // The test of the package runs what it installed in both versions: it is built and installed once.
  process.env.FNGW_TEST_OTHER_NODE = program
  const { stdout } = await promisify(execFile)(program, ['--version'])
  const version = stdout.trim()
  const env = { FNGW_TEST_LANGUAGES: LANGUAGES }
  return { runs: FILES.map(file => ({ file, program, version, env })), note: null }
}

/** @param {string} root @returns {Promise<{ program: string, problem: null } | { program: null, problem: string }>} */
async function findNode(root) {
  const given = process.env.FN_TEST_NODE_24
  if (given !== undefined) {
    return existsSync(given)
      ? { program: given, problem: null }
      : { program: null, problem: `FN_TEST_NODE_24 names ${given}, which is not there` }
  }
  const name = `node-${process.platform}-${process.arch}`
  const folder = join(root, 'node_modules/.cache/fngw-node', String(MAJOR))
  const program = join(folder, 'node_modules', name, 'bin/node')
  if (existsSync(program)) return { program, problem: null }
  try {
    mkdirSync(folder, { recursive: true })
    const flags = ['--no-save', '--no-package-lock', '--no-audit', '--no-fund', '--loglevel=error']
    await promisify(execFile)('npm', ['install', ...flags, '--prefix', folder, `${name}@${MAJOR}`], {
      timeout: FETCH_TIMEOUT_MS,
    })
  } catch (error) {
    const { stderr, message } = /** @type {{ stderr?: string, message: string }} */ (error)
    return { program: null, problem: (stderr?.trim() || message).split('\n')[0] ?? '' }
  }
  return existsSync(program)
    ? { program, problem: null }
    : { program: null, problem: `package ${name} has no bin/node` }
}
