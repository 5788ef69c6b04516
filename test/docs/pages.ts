/** The pages of docs/. Owner: page docs. */

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** Paths below the repository, sorted. */
export function listPages(): string[] {
  return ['docs', 'docs/handlers', 'docs/recipes', 'docs/reference']
    .flatMap(folder => readdirSync(join(ROOT, folder)).map(name => `${folder}/${name}`))
    .filter(path => path.endsWith('.md'))
    .sort()
}

export function readPage(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8')
}
