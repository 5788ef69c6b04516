/** The handlers that a `fn.routes.json` names. Owner: §1, page discovery/layouts. */

import type { RouteEntry } from '../config/routes-file.ts'
import { METHODS } from '../core/identity.ts'
import { pathWarning } from './disk.ts'
import { findTarget } from './entry-file.ts'
import { extensionOf } from './file-name.ts'
import type { FolderMaker } from './folder-maker.ts'
import type { Handler } from './functions.ts'
import { manifestsOf } from './signature.ts'
import { toChild } from './tree-path.ts'

/** One function for each file, whatever routes lead to it. */
export function addManifest(folder: FolderMaker): void {
  const byTarget = new Map<string, RouteEntry[]>()
  for (const entry of folder.visit.configs.routes) {
    byTarget.set(entry.target, [...(byTarget.get(entry.target) ?? []), entry])
  }
  for (const [path, entries] of byTarget) addTarget(folder, path, entries)
}

function addTarget(folder: FolderMaker, path: string, entries: readonly RouteEntry[]): void {
  const { part, node, layers, configs, helpers, context, facts } = folder.visit
  const origin = toChild(node.path, 'fn.routes.json')
  const target = findTarget(node, path, facts.enabled)
  if (!target.ok) {
    const text = `routes[${JSON.stringify(entries[0]!.definition)}]: the target ${JSON.stringify(path)} ${target.problem}`
    part.warnings.push(pathWarning('MANIFEST_TARGET', origin, text, target.hint))
    return
  }
  const inner = target.folders.map(folder => facts.configs(folder))
  const { env, envProblem } = inner.at(-1) ?? configs
  const targetNode = target.folders.at(-1) ?? node
  const handler: Handler = {
    runtime: target.runtime,
    folder: target.folder,
    file: target.file,
    fnFolder: target.folder,
    layers: [...layers, ...inner.map(({ config }) => config)],
    env,
    envProblem,
    helpers,
    manifests: manifestsOf(targetNode, target.runtime),
    schema: folder.schemas.of(targetNode, target.file),
  }
  const named = new Set(entries.flatMap(entry => entry.methods))
  const methods = METHODS.filter(method => named.has(method))
  const name = toChild(context.name, path.slice(0, path.length - extensionOf(path).length))
  const fn = folder.make(handler, { name, version: null, kind: 'file' }, { kind: 'file', methods }, false)
  let isClaimed = false
  for (const entry of entries) {
    const request = { fn, route: entry.path, methods: entry.methods, source: 'manifest', forced: false } as const
    if (part.claim({ ...request, origin, implied: false })) isClaimed = true
  }
  if (isClaimed) part.targets.push(fn)
}
