/** Which file describes the requests of a handler. Owner: page validation/schema-file. */

import type { SchemaFileRef } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import { pathWarning } from './disk.ts'
import { parseFileName, SCHEMA_NAME, schemaNamesOf } from './file-name.ts'
import type { DirNode, FileEntry } from './snapshot.ts'
import { toChild } from './tree-path.ts'

/** The schemas of one folder: which handler has which, and which has none. */
export class FolderSchemas {
  readonly #node: DirNode
  readonly #used = new Set<string>()

  constructor(node: DirNode) {
    this.#node = node
  }

  /**
   * The file beside a handler.
   * @param node - folder in which it is looked for
   * @param isEntrypoint - the handler lies further down, and stands for this folder
   */
  of(node: DirNode, file: FileEntry, isEntrypoint = false): SchemaFileRef | null {
    const name = parseFileName(file.name)
    const standsForFolder = isEntrypoint || (name.kind === 'route' && name.path === '')
    for (const wanted of schemaNamesOf(file.name, standsForFolder)) {
      const found = node.files.find(other => other.name === wanted)
      if (found === undefined) continue
      if (node === this.#node) this.#used.add(wanted)
      return { path: toChild(node.path, wanted), size: found.size, mtimeMs: found.mtimeMs }
    }
    return null
  }

  /** Warns of a `schema.json` that describes nothing; files of other names may be data of a handler. */
  check(): Warning[] {
    const node = this.#node
    if (this.#used.has(SCHEMA_NAME) || !node.files.some(file => file.name === SCHEMA_NAME)) return []
    const text = 'describes no handler: it is not used'
    const hint = 'It is for index, handler, main and get.js of its folder; [id].js has [id].schema.json.'
    return [pathWarning('SCHEMA_UNUSED', toChild(node.path, SCHEMA_NAME), text, hint)]
  }
}
