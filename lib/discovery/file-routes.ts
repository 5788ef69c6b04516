/** The file routes of one folder. Owner: §2.2, §2.3. */

import type { Method } from '../core/identity.ts'
import { parsePattern } from '../core/pattern.ts'
import { findTarget } from './entry-file.ts'
import type { RouteFile } from './file-name.ts'
import type { FolderMaker } from './folder-maker.ts'
import type { Handler, Identity } from './functions.ts'
import { toChild } from './tree-path.ts'

/** @param entries - handlers of the folder itself */
export function addFileRoutes(folder: FolderMaker, entries: readonly Handler[]): void {
  const { visit } = folder
  const { part, node, files, config, context, facts } = visit
  const { prefix, name } = context
  const { routes } = files
  const hasEntry = entries.length > 0
  const isLone = !hasEntry && routes.length === 1
  for (const { file, methods: wanted } of routes) {
    const target = findTarget(node, file.fileName, facts.enabled)
    if (!target.ok) continue
    const methods = hasEntry ? leftByEntrypoint(folder, file, wanted, entries[0]!) : wanted
    if (methods.length === 0) continue
    const identity: Identity = { name: toChild(name, file.stem), version: null, kind: 'file' }
    const fn = folder.make(folder.handler(target), identity, { kind: 'file', methods }, isLone)
    if (prefix === null) {
      part.ignore(fn.entryFile, 'its folder has no public path')
      continue
    }
    const route = `${prefix}/${file.path}`
    const origin = fn.entryFile
    if (part.claim({ fn, route, methods, source: 'file', forced: false, origin, implied: false }))
      part.functions.push(fn)
  }
  if (hasEntry || routes.length === 1) return
  if (config === null || config.problem !== undefined) return
  if (config.schedule === undefined && config.scheduleProblem === undefined && config.keepWarm === undefined) return
  const text = `sets schedule or keep_warm, but its folder has ${routes.length} handlers and none that stands for it`
  const hint = 'Move the block to the fn.config.json of a folder with one handler.'
  visit.warn('SCHEDULE_WITHOUT_FUNCTION', text, hint)
}

/** An explicit `entrypoint` answers all its methods: what it leaves to another file of its folder with the same route. */
function leftByEntrypoint(
  folder: FolderMaker,
  file: RouteFile,
  methods: readonly Method[],
  entry: Handler,
): readonly Method[] {
  const { part, node, config, context } = folder.visit
  if (config?.entrypoint === undefined || context.prefix === null) return methods
  const pattern = parsePattern(`${context.prefix}/${file.path}`)
  if ('problem' in pattern) return methods
  const held = new Set<Method>()
  const entryFile = toChild(entry.folder, entry.file.name)
  for (const claim of part.claims) {
    if (claim.fn.entryFile !== entryFile || claim.pattern.shape !== pattern.shape) continue
    for (const method of claim.methods) held.add(method)
  }
  const taken = methods.filter(method => held.has(method))
  const path = toChild(node.path, file.fileName)
  if (taken.length > 0 && path !== entryFile) {
    part.ignore(path, `entrypoint is ${config.entrypoint}, which answers ${taken.join(', ')} of this path`)
  }
  return methods.filter(method => !held.has(method))
}
