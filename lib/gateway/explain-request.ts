/** Explains which function or document responds to a request and why. Owner: §3, page bin/routes. */

import { isDeepStrictEqual } from 'node:util'
import { isAsset } from '../assets/static-assets.ts'
import {
  type FunctionConfig,
  mergePolicies,
  type PolicyDefaults,
  type PolicyTarget,
} from '../config/function-config.ts'
import type { Settings } from '../config/settings.ts'
import type { FunctionVersion, Policy } from '../core/catalog.ts'
import { isReservedPath } from '../core/identity.ts'
import { toSnakeName } from '../core/text.ts'
import { explainIgnored } from '../discovery/discover.ts'
import { toChild } from '../discovery/disk.ts'
import { ConfigReader } from '../discovery/folder.ts'
import { extensionOf, FOLDER_STEMS } from '../discovery/layouts.ts'
import type { DirNode, Snapshot } from '../discovery/snapshot.ts'
import { DOCUMENTS } from '../http/docs-page.ts'
import { explain } from '../router/explain.ts'
import { normalizePath, unescapeCanonical } from '../router/radix-tree.ts'
import type { Catalog } from './catalog-loader.ts'
import type { BesideRoutes, GatewayExplanation } from './options.ts'
import { findDocumentClaims } from './serving.ts'

/**
 * Explains one request without running it.
 * @param target - path in any spelling; a query is cut off
 */
export function explainRequest(
  catalog: Catalog,
  settings: Pick<Settings, 'docsEnabled'>,
  method: string,
  target: string,
  host: string,
): GatewayExplanation {
  const [asked = ''] = target.split(/[?#]/, 1)
  const canonical = normalizePath(asked)
  const explained = explain(catalog.routes, method, asked, host)
  // A malformed path gets 400, whatever the routes are.
  if (typeof canonical !== 'string') return { ...explained, beside: null, ...explainIgnored(catalog.discovery, asked) }
  const path = unescapeCanonical(canonical)
  const isRead = method === 'GET' || method === 'HEAD'
  const beside = isReservedPath(path)
    ? { kind: 'control' as const, text: 'the gateway itself: its control plane' }
    : isRead
      ? findBeside(catalog, settings, canonical, explained.winner !== null)
      : null
  return { ...explained, beside, ...explainIgnored(catalog.discovery, path) }
}

/** The document, home or file that responds to a reading request before the routes or, without a route, after them. */
function findBeside(
  { homes, routes, discovery: { assets } }: Catalog,
  { docsEnabled }: Pick<Settings, 'docsEnabled'>,
  path: string,
  hasRoute: boolean,
): BesideRoutes | null {
  const document = docsEnabled ? DOCUMENTS.get(path) : undefined
  if (document !== undefined && !findDocumentClaims(routes, assets).has(path))
    return { kind: 'document', text: document }
  const home = homes.find(({ folder }) => folder === path)
  // A folder's own route comes before its home; the root's comes after it.
  if (home !== undefined && (path === '/' || !hasRoute)) {
    const by = home.origin === '.' ? 'a setting' : home.origin
    return { kind: 'home', text: `the home of ${path}: ${home.kind} ${home.target}, by ${by}` }
  }
  if (assets === null || (hasRoute && assets.runWorkerFirst)) return null
  if (isAsset(path, assets)) return { kind: 'asset', text: `a file of the assets directory ${assets.directory}` }
  if (hasRoute || assets.notFoundHandling !== 'single-page-application') return null
  return { kind: 'asset', text: `index.html of the assets directory ${assets.directory} (single-page application)` }
}

// The file of each value of a function's policy, read on request from the configs in force.

interface PolicySource {
  /** Below the functions root; null where no file says it. */
  file: string | null
  /** The setting that the value is then; absent where it is fixed. */
  setting?: string
}

/** Fields of `policy` in `/_fn/function`. */
const FIELDS = [
  ...(['timeoutMs', 'maxConcurrency', 'maxBodyBytes', 'methods', 'allowHosts', 'handler', 'adapter', 'group'] as const),
  ...(['summary', 'includeDebugHeaders', 'sharedDeps', 'workerPool', 'keepWarm', 'edge', 'cors', 'schedule'] as const),
  ...(['isPrivate', 'configProblem'] as const),
] satisfies readonly (keyof Policy)[]

const SETTINGS: Readonly<Record<string, string>> = {
  timeout_ms: 'defaultTimeoutMs',
  max_concurrency: 'defaultMaxConcurrency',
  max_body_bytes: 'defaultMaxBodyBytes',
}

/** @returns by the names that `policy` has in `/_fn/function` */
export function toPolicySources(
  fn: FunctionVersion,
  { root, rootPath }: Snapshot,
  defaults: PolicyDefaults,
): Record<string, PolicySource> {
  const path = fn.fnDir.slice(rootPath.length).split('/').filter(Boolean)
  const reader = new ConfigReader()
  const nodes = toNodes(root, path)
  const layers = nodes.map(node => reader.read(node).config)
  const { givenBy, policy } = mergeAs(fn, layers, defaults)
  const fileOf = (config: FunctionConfig | undefined): string | null => {
    const node = config === undefined ? undefined : nodes[layers.lastIndexOf(config)]
    return node === undefined ? null : toChild(node.path, 'fn.config.json')
  }
  const sources = FIELDS.map((field): [string, PolicySource] => {
    const name = field === 'isPrivate' ? 'private' : toSnakeName(field)
    // One handler of a folder carries its schedule; the others have none, whatever the config says.
    const isUsed = isDeepStrictEqual(policy[field], fn.policy[field])
    const file = isUsed ? fileOf(givenBy.get(field)) : null
    const setting = file === null ? SETTINGS[name] : undefined
    return [name, setting === undefined ? { file } : { file, setting }]
  })
  const fixed = findFixedMethods(fn, nodes, reader)
  return { ...Object.fromEntries(sources), ...(fixed !== null && { methods: { file: fixed } }) }
}

/** Folders from the root down, as far as they are there. */
function toNodes(root: DirNode, path: readonly string[]): DirNode[] {
  const nodes = [root]
  for (const name of path) {
    const node = nodes.at(-1)!.dirs.find(dir => dir.name === name)
    if (node === undefined) break
    nodes.push(node)
  }
  return nodes
}

/** The policy again, as the kind of function that it is. A version without a function beside it is one by itself. */
function mergeAs(fn: FunctionVersion, layers: readonly (FunctionConfig | null)[], defaults: PolicyDefaults) {
  const kinds: PolicyTarget['kind'][] = fn.version === null ? [fn.kind] : ['version', 'function']
  const merged = kinds.map(kind => {
    const givenBy = new Map<keyof Policy, FunctionConfig>()
    return { givenBy, policy: mergePolicies(layers, defaults, { kind, givenBy }) }
  })
  const isSame = ({ policy }: (typeof merged)[number]): boolean =>
    FIELDS.every(field => isScheduled(field) || isDeepStrictEqual(policy[field], fn.policy[field]))
  return merged.find(isSame) ?? merged[0]!
}

function isScheduled(field: keyof Policy): boolean {
  return field === 'schedule' || field === 'keepWarm'
}

/** The file whose name or text fixes the methods, whatever configs say: a `fn.routes.json` or the handler itself. */
function findFixedMethods(fn: FunctionVersion, nodes: readonly DirNode[], reader: ConfigReader): string | null {
  if (fn.kind !== 'file') return null
  const { entryFile, name } = fn
  for (const node of nodes) {
    const isNamed = reader.read(node).routes.some(({ target }) => toChild(node.path, target) === entryFile)
    if (isNamed) return toChild(node.path, 'fn.routes.json')
  }
  const fileName = entryFile.slice(entryFile.lastIndexOf('/') + 1)
  const stem = fileName.slice(0, -extensionOf(fileName).length)
  // `users/index.js` is called `users`, a file route by its file; in the root there is no other name.
  const isOfFolder = fileName === entryFile ? FOLDER_STEMS.has(stem) : !`/${name}`.endsWith(`/${stem}`)
  return isOfFolder ? null : entryFile
}
