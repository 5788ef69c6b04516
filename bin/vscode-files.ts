/** `fngw init --vscode`: how VS Code attaches to the languages of a tree. It never overwrites. Owner: page bin/init. */

import { lstatSync, mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { RuntimeName } from '../lib/core/identity.ts'
import { UsageError } from './usage-error.ts'

interface VscodeSupport {
  configuration: object
  /** Ids of extensions; none where VS Code has what it takes. */
  extensions: readonly string[]
}

/** The ports are those that `fngw dev` begins with; `--inspect-fn` makes the first one that of the function. */
const SUPPORT: Partial<Record<RuntimeName, VscodeSupport>> = {
  node: {
    configuration: {
      name: 'fngw: Node.js (fngw dev --inspect)',
      type: 'node',
      request: 'attach',
      address: '127.0.0.1',
      port: 9229,
      restart: true,
      skipFiles: ['<node_internals>/**', '**/node_modules/**'],
    },
    extensions: [],
  },
  python: {
    configuration: {
      name: 'fngw: Python (fngw dev --debug-py)',
      type: 'debugpy',
      request: 'attach',
      connect: { host: '127.0.0.1', port: 5678 },
      justMyCode: true,
    },
    extensions: ['ms-python.debugpy'],
  },
  php: {
    configuration: {
      name: 'fngw: PHP (fngw dev --debug-php)',
      type: 'php',
      request: 'launch',
      hostname: '127.0.0.1',
      port: 9003,
    },
    extensions: ['xdebug.php-debug'],
  },
}

/** Templates of `fngw init` whose functions VS Code can stop. */
export const VSCODE_TEMPLATES: ReadonlySet<string> = new Set(['node', 'ts', 'python', 'php', 'api', 'spa'])
const FOLDER = '.vscode'
const LAUNCH = join(FOLDER, 'launch.json')
const EXTENSIONS = join(FOLDER, 'extensions.json')

/** @throws UsageError when a file is there, or a link instead of the folder: nothing is written then */
export function checkVscodeFiles(cwd: string): void {
  const find = (path: string) => lstatSync(join(cwd, path), { throwIfNoEntry: false })
  if (find(FOLDER)?.isDirectory() === false)
    throw new UsageError(`${FOLDER} is not a folder, nothing was written: move it away (links are not followed)`)
  // A link that leads nowhere is there too.
  const present = [LAUNCH, EXTENSIONS].find(file => find(file) !== undefined)
  if (present !== undefined)
    throw new UsageError(
      `${present} is already there, nothing was written: move it away, or add the configurations of docs/debugging.md to it`,
    )
}

/**
 * @param runtimes - the languages of the tree
 * @returns the files, relative to the working directory
 * @throws UsageError when a file is there, or no language of the tree can be debugged
 */
export function writeVscodeFiles(cwd: string, runtimes: ReadonlySet<RuntimeName>): string[] {
  checkVscodeFiles(cwd)
  const supports = (Object.keys(SUPPORT) as RuntimeName[])
    .filter(name => runtimes.has(name))
    .map(name => SUPPORT[name]!)
  if (supports.length === 0)
    throw new UsageError(
      '--vscode is for functions in Node.js, TypeScript, Python and PHP, and there are none; docs/debugging.md has the steps for Go and Rust',
    )
  const launch = { version: '0.2.0', configurations: supports.map(({ configuration }) => configuration) }
  const recommendations = supports.flatMap(({ extensions }) => extensions)
  const files: [file: string, content: object][] = [[LAUNCH, launch]]
  if (recommendations.length > 0) files.push([EXTENSIONS, { recommendations }])
  mkdirSync(dirname(join(cwd, LAUNCH)), { recursive: true })
  for (const [file, content] of files)
    writeFileSync(join(cwd, file), `${JSON.stringify(content, null, 2)}\n`, { flag: 'wx' })
  return files.map(([file]) => file)
}
