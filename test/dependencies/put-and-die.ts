/** A program that puts a set of packages in place and is killed at a step of its own: `node put-and-die.ts ROOT VERSION STEP`. */

import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { join } from 'node:path'

const [root = '', version = '', step = ''] = process.argv.slice(2)
let left = Number(step)

type AnyFunction = (...args: unknown[]) => unknown

function watch(owner: object, names: readonly string[]): void {
  const functions = owner as Record<string, AnyFunction>
  for (const name of names) {
    const real = functions[name]!
    functions[name] = (...args) => {
      left -= 1
      if (left === 0) process.kill(process.pid, 'SIGKILL')
      return real(...args)
    }
  }
}

watch(fs, ['mkdirSync', 'mkdtempSync', 'openSync', 'writeFileSync', 'fsyncSync', 'renameSync', 'rmSync'])
watch(fs.promises, ['mkdir', 'link', 'symlink', 'copyFile'])
syncBuiltinESMExports()

// After the functions are replaced, and before that nothing is counted.
const { systemClock } = await import('../../lib/core/clock.ts')
const { PackageFolder, PackageSets } = await import('../../lib/dependencies/package-set.ts')
left = Number(step)

const key = version.repeat(32)
const sets = new PackageSets(root, { clock: systemClock, isPrivate: false })
const folder = new PackageFolder(join(root, 'fn'), '.deps')
folder.recover()
const set = await sets.ensure({
  runtime: 'python',
  key,
  user: null,
  signal: new AbortController().signal,
  asker: { folder: join(root, 'fn'), signature: version },
  fill: async draft => {
    for (const name of ['a', 'b', 'c']) draft.below('.deps', name).write('code.py', version)
    return { resolvedPackages: [], unresolvedImports: [] }
  },
})
await folder.put(set)
// How many steps that took.
process.stdout.write(String(Number(step) - left))
