// The product as it is installed: compiled, with what it reads beside it. It starts in a third of the time that its sources take.
import { spawnSync } from 'node:child_process'
import { chmodSync, mkdtempSync, realpathSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../..', import.meta.url))
const BESIDE = ['runtimes', 'spec', 'package.json', 'node_modules']

/**
 * Compiles the sources into a folder of their own, types unchecked.
 * @returns {{ folder: string, program: string, cleanup: () => void }} `program` is the full path of the command line
 * @throws Error with the compiler's words
 */
export function compileProduct() {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'fngw-built-')))
  // Tests run it as other users.
  chmodSync(folder, 0o755)
  const dist = join(folder, 'dist')
  const words = ['node_modules/typescript/bin/tsc', '-p', 'tsconfig.build.json', '--declaration', 'false']
  const tsc = spawnSync(process.execPath, [...words, '--outDir', dist], { cwd: root, encoding: 'utf8' })
  for (const name of BESIDE) symlinkSync(join(root, name), join(folder, name))
  const cleanup = () => rmSync(folder, { recursive: true, force: true })
  if (tsc.error !== undefined || tsc.status === null) {
    cleanup()
    throw new Error(`tsc: ${tsc.error?.message ?? tsc.signal}`)
  }
  // Tests build it where they want it.
  symlinkSync(join(root, 'dist/console'), join(dist, 'console'))
  return { folder, program: join(dist, 'bin/fngw.js'), cleanup }
}
