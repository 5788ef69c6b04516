// All sources and tests compiled at once, for the whole of a run: a test file needs no loader then, which takes each process 0.2 to 0.5 s.
//
//   lib/a.js           compiled
//   lib/a.ts -> a.js   so that `import './a.ts'` finds it: Node goes by the name of the file that the link leads to
//   runtimes -> ...    all that is not compiled is a link into the project
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join, relative } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const root = fileURLToPath(new URL('../..', import.meta.url))
const FOLDERS = ['lib', 'bin', 'build', 'conformance', 'console', 'test']

/** Compiled code finds files by the place of its source. */
const PLACES = {
  'import.meta.url': ['fngwSourceUrl', source => pathToFileURL(source).href],
  'import.meta.filename': ['fngwSourceFile', source => source],
  'import.meta.dirname': ['fngwSourceFolder', dirname],
}

/**
 * @param {string | null} tapFile - full path of tap as one file, see tap-bundle.mjs; null leaves tap to its own modules
 * @returns {Promise<{ folder: string, cleanup: () => void }>}
 */
export async function compileSources(tapFile) {
  const { build } = await import('esbuild')
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'fngw-compiled-')))
  // Tests run as other users too.
  chmodSync(folder, 0o755)
  const cleanup = () => rmSync(folder, { recursive: true, force: true })
  try {
    const sources = FOLDERS.flatMap(name => linkOthers(name, folder))
    for (const name of readdirSync(root)) {
      if (!FOLDERS.includes(name) && !name.startsWith('.')) symlinkSync(join(root, name), join(folder, name))
    }
    const { outputFiles } = await build({
      entryPoints: sources.map(file => join(root, file)),
      outdir: folder,
      outbase: root,
      write: false,
      format: 'esm',
      platform: 'node',
      target: 'node20',
      define: Object.fromEntries(Object.entries(PLACES).map(([name, [variable]]) => [name, variable])),
      sourcemap: 'inline',
      sourcesContent: false,
      logLevel: 'silent',
    })
    for (const { path, text } of outputFiles) {
      const source = join(root, relative(folder, path).replace(/js$/, 'ts'))
      writeFileSync(path, finish(text, source, tapFile))
      symlinkSync(basename(path), path.replace(/js$/, 'ts'))
    }
  } catch (error) {
    cleanup()
    throw error
  }
  return { folder, cleanup }
}

/** Makes the folders below one of the project's, with links to all that is not compiled. @returns the sources */
function linkOthers(path, folder) {
  mkdirSync(join(folder, path))
  return readdirSync(join(root, path), { withFileTypes: true }).flatMap(entry => {
    const file = join(path, entry.name)
    if (entry.isDirectory() && entry.name !== 'fixtures') return linkOthers(file, folder)
    if (entry.isFile() && file.endsWith('.ts') && !file.endsWith('.d.ts')) return [file]
    symlinkSync(join(root, file), join(folder, file))
    return []
  })
}

/** All on the first line: the source map counts lines. */
function finish(text, source, tapFile) {
  const places = Object.values(PLACES)
    .filter(([variable]) => text.includes(variable))
    .map(([variable, toValue]) => `const ${variable} = ${JSON.stringify(toValue(source))};`)
    .join('')
  const found = text.startsWith('#!') ? text.replace('\n', `\n${places}`) : places + text
  return tapFile === null ? found : found.replace(/^(import .* from )"tap";$/m, `$1"${pathToFileURL(tapFile).href}";`)
}

/** Where the compiled text of a source is; null for one elsewhere. @param path - full path */
export function compiledFileOf(folder, path) {
  const file = relative(root, path)
  if (!FOLDERS.includes(file.split('/')[0])) return null
  const compiled = join(folder, file.replace(/\.ts$/, '.js'))
  return existsSync(compiled) ? compiled : null
}
