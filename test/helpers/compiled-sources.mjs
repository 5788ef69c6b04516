// All sources and tests compiled at once, for the whole of a run: tsx takes each test file 0.2 to 0.5 s of a processor to read them.
import { chmodSync, mkdtempSync, readdirSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../..', import.meta.url))
const FOLDERS = ['lib', 'bin', 'conformance', 'test']

/** @returns {Promise<{ folder: string, cleanup: () => void }>} */
export async function compileSources() {
  const { build } = await import('esbuild')
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'fngw-compiled-')))
  // Tests run as other users too.
  chmodSync(folder, 0o755)
  const cleanup = () => rmSync(folder, { recursive: true, force: true })
  const files = FOLDERS.flatMap(name =>
    readdirSync(join(root, name), { recursive: true })
      .map(String)
      .filter(file => file.endsWith('.ts') && !file.includes('fixtures/'))
      .map(file => join(root, name, file)),
  )
  try {
    await build({
      entryPoints: files,
      outdir: folder,
      outbase: root,
      format: 'esm',
      platform: 'node',
      target: 'node20',
      sourcemap: 'inline',
      sourcesContent: false,
      logLevel: 'silent',
    })
  } catch (error) {
    cleanup()
    throw error
  }
  return { folder, cleanup }
}

/** Where the compiled text of a source is; null for one elsewhere. @param path - full path */
export function compiledFileOf(folder, path) {
  const file = relative(root, path)
  return FOLDERS.includes(file.split('/')[0]) ? join(folder, file.replace(/\.ts$/, '.js')) : null
}
