/** debugpy for `fngw dev --debug-py`: that of the interpreter, or one that is installed once for it. Owner: page runtime/debuggers. */

import { execFile } from 'node:child_process'
import { lstatSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs'
import { homedir } from 'node:os'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { CommandError } from './usage-error.ts'

const run = promisify(execFile)
/** Whether it has debugpy, and a name for the packages that it can load. */
const QUESTION =
  'import importlib.util, sys, sysconfig; print(importlib.util.find_spec("debugpy") is not None, sys.implementation.cache_tag + "-" + sysconfig.get_platform())'
const INSTALL_MS = 120_000

interface DebugpyOptions {
  /** Full path of the interpreter. */
  python: string
  env: Readonly<Record<string, string | undefined>>
  /** Reports a step that takes long. */
  note(text: string): void
}

/**
 * @returns the folder that has it; null when the interpreter has it
 * @throws CommandError when it cannot be installed
 */
export async function findDebugpy({ python, env, note }: DebugpyOptions): Promise<string | null> {
  const failed = (error: unknown): never => {
    const { message, stderr = '' } = error as Error & { stderr?: string }
    const why = stderr.trim().split('\n').at(-1) || message
    throw new CommandError(`cannot install debugpy: ${why}; install it yourself: ${python} -m pip install debugpy`)
  }
  const { stdout } = await run(python, ['-c', QUESTION], { env }).catch(failed)
  const [has, tag = ''] = stdout.trim().split(' ')
  if (has === 'True') return null
  const cache = env.XDG_CACHE_HOME || join(env.HOME || homedir(), '.cache')
  // By this name its files count as installed, not as the author's.
  const folder = join(cache, 'fngw', 'debugpy', tag, 'site-packages')
  if (isOwnFolder(folder)) return folder
  note(`installing debugpy into ${folder}, once`)
  const parent = dirname(folder)
  mkdirSync(parent, { recursive: true, mode: 0o700 })
  const made = mkdtempSync(join(parent, 'new-'))
  try {
    const options = ['--quiet', '--disable-pip-version-check', '--no-input', '--no-deps', '--only-binary', ':all:']
    await run(python, ['-m', 'pip', 'install', ...options, '--target', made, 'debugpy'], { env, timeout: INSTALL_MS })
    rmSync(folder, { recursive: true, force: true })
    renameSync(made, folder)
    note('installed debugpy')
  } catch (error) {
    rmSync(made, { recursive: true, force: true })
    failed(error)
  }
  return folder
}

/** False for a folder that another user could have created, because its code is run. */
function isOwnFolder(folder: string): boolean {
  const stats = lstatSync(folder, { throwIfNoEntry: false })
  return stats?.isDirectory() === true && (process.getuid === undefined || stats.uid === process.getuid())
}
