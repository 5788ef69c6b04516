/** All that the outcome of a folder depends on beside the folder itself. Owner: §2.2. */

import type { FunctionConfig } from '../config/function-config.ts'
import type { FolderView } from './folder-files.ts'
import { type Helpers, NO_HELPERS, sameHelpers } from './signature.ts'

/** The function or namespace right above a folder: the folder may be a version of it. */
export interface Parent {
  name: string
  config: FunctionConfig | null
  isFunction: boolean
}

export interface Context {
  /** 0 is the root. */
  level: number
  /** Public path in canonical text, empty for the root; null when nothing in the folder has a path of its own. */
  prefix: string | null
  /** Name of the function that the folder may be. */
  name: string
  view: FolderView
  /** Folder levels below the runtime's folder. */
  groupDepth: number
  /** Configs of the folders above, from the root down; null for a folder without one. */
  layers: readonly (FunctionConfig | null)[]
  /** Helper files in reach from above. */
  helpers: Helpers
  parent: Parent | null
}

export const ROOT_CONTEXT: Context = {
  level: 0,
  prefix: '',
  name: '',
  view: { group: null, isInsideFunction: false },
  groupDepth: 0,
  layers: [],
  helpers: NO_HELPERS,
  parent: null,
}

export function sameContext(a: Context, b: Context): boolean {
  return (
    a.prefix === b.prefix &&
    a.name === b.name &&
    a.groupDepth === b.groupDepth &&
    sameView(a.view, b.view) &&
    sameParent(a.parent, b.parent) &&
    a.layers.length === b.layers.length &&
    a.layers.every((layer, index) => layer === b.layers[index]) &&
    sameHelpers(a.helpers, b.helpers)
  )
}

export function sameView(a: FolderView, b: FolderView): boolean {
  return a.group === b.group && a.isInsideFunction === b.isInsideFunction
}

function sameParent(a: Parent | null, b: Parent | null): boolean {
  if (a === null || b === null) return a === b
  return a.name === b.name && a.config === b.config && a.isFunction === b.isFunction
}
