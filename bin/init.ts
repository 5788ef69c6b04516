/** `fngw init`: a function directory to start from. It never overwrites. Owner: §1, page bin/init. */

import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, relative, sep } from 'node:path'
import { isFunctionName } from '../lib/core/identity.ts'
import { runtimeFile } from '../lib/runtime/package-files.ts'
import { UsageError } from './usage-error.ts'
import { TEMPLATE_NAMES, TEMPLATES, type TemplateName, toConfigText } from './templates.ts'

interface InitResult {
  /** Full path of the new folder. */
  folder: string
  /** Paths of the written files, relative to the folder given. */
  files: string[]
  urlPath: string
}

function isTemplate(name: string): name is TemplateName {
  return (TEMPLATE_NAMES as readonly string[]).includes(name)
}

/** The published schema when the package is installed in the project, so that editors complete the config. */
function findSchema(cwd: string, folder: string): string | null {
  const schema = join(cwd, 'node_modules', 'fngw', 'spec', 'schema', 'fn.config.schema.json')
  return existsSync(schema) ? relative(folder, schema).split(sep).join('/') : null
}

/**
 * Writes `<cwd>/<name>/handler.<ext>` and `fn.config.json`; with types also `_fngw_types.py`, the event's types for Python.
 * @throws UsageError for a bad name or template, or when a file is already there
 */
export function init(cwd: string, name: string, templateName: string, withTypes = false): InitResult {
  if (!isFunctionName(name)) {
    throw new UsageError(
      `name must be segments of letters, digits, _ and - joined by /, such as hello or api/users; got "${name}"`,
    )
  }
  if (!isTemplate(templateName)) {
    throw new UsageError(`--template must be one of ${TEMPLATE_NAMES.join(', ')}; got "${templateName}"`)
  }
  const template = TEMPLATES[templateName]
  const folder = join(cwd, name)
  const files: [fileName: string, text: string][] = [
    [template.fileName, template.fileText],
    ['fn.config.json', toConfigText(template, findSchema(cwd, folder))],
  ]
  if (withTypes) {
    if (templateName !== 'python') {
      throw new UsageError(
        '--types is for python; in TypeScript write: import type { FnEvent, FnResponse } from "fngw"',
      )
    }
    files.push(['_fngw_types.py', readFileSync(runtimeFile('python/_fngw_types.py'), 'utf8')])
  }
  for (const [fileName] of files) {
    const path = join(folder, fileName)
    if (existsSync(path)) {
      throw new UsageError(
        `${relative(cwd, path)} is already there and is left as it is; choose another name or remove it`,
      )
    }
  }
  mkdirSync(folder, { recursive: true })
  // `wx`: a file that appeared since the check is not overwritten either.
  for (const [fileName, text] of files) writeFileSync(join(folder, fileName), text, { flag: 'wx' })
  return { folder, files: files.map(([fileName]) => `${name}/${fileName}`), urlPath: `/${name}` }
}

/** What to do next, for a person. */
export function toInitText(result: InitResult): string {
  const handler = result.files[0] ?? ''
  const runtime = handler.endsWith('.go') ? 'go' : handler.endsWith('.rs') ? 'rust' : null
  return [
    ...result.files.map(file => `created ${file}`),
    '',
    'next:',
    // Experimental runtimes serve only when they are asked for.
    `  ${runtime === null ? '' : `FN_RUNTIMES=${runtime} `}fngw dev --native`,
    `  curl 'http://127.0.0.1:8080${result.urlPath}?name=you'`,
    '',
  ].join('\n')
}
