// tap as one file. Read from its own 200 modules through the TypeScript loader it costs each test file 0.3 s, which is
// two minutes of a whole run; as one file that no other loader looks at, 0.05 s.
import { existsSync, mkdirSync, readFileSync, renameSync } from 'node:fs'
import { join } from 'node:path'

/** Requires of the bundle, and of packages that tap looks for when a test needs them, go by its own place in node_modules. */
const BANNER = "import { createRequire as toRequire } from 'node:module'; const require = toRequire(import.meta.url);"

/**
 * Makes the file once for each version of tap.
 * @param {string} root - of the project
 * @returns {Promise<{ file: string, note: null } | { file: null, note: string }>}
 */
export async function bundleTap(root) {
  const { version } = JSON.parse(readFileSync(join(root, 'node_modules/tap/package.json'), 'utf8'))
  // tap leaves its own frames out of stacks by the name of this folder.
  const folder = join(root, 'node_modules/.cache/fngw-tap/node_modules/@tapjs')
  const file = join(folder, `tap-${version}.mjs`)
  try {
    if (!existsSync(file)) await bundle(root, folder, file)
    return { file, note: null }
  } catch (error) {
    const why = /** @type {Error} */ (error).message.split('\n')[0]
    return { file: null, note: `tap is loaded from its modules, which takes longer: ${why}` }
  }
}

async function bundle(root, folder, file) {
  const { build } = await import('esbuild')
  mkdirSync(folder, { recursive: true })
  const unfinished = `${file}.${process.pid}`
  await build({
    entryPoints: [join(root, 'node_modules/tap/dist/esm/index.js')],
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    banner: { js: BANNER },
    outfile: unfinished,
    logLevel: 'silent',
  })
  renameSync(unfinished, file)
}
