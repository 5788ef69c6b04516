/** Paths of folders and files below the functions root, with posix separators; '' is the root. Owner: §2.2, page discovery/layouts. */

/** The folder of a path below the root; the root's own is the root. */
export function parentOf(path: string): string {
  return path.slice(0, Math.max(0, path.lastIndexOf('/')))
}

/** A path one step down. */
export function toChild(folder: string, name: string): string {
  return folder === '' ? name : joined(folder, name)
}

/** A full path and one below it: both are clean, and `join` would look at every character of ten thousand. */
export function below(folder: string, path: string): string {
  return folder.endsWith('/') ? folder + path : joined(folder, path)
}

/** In one piece: what `+` makes keeps its parts beside itself, for each of ten thousand. */
function joined(folder: string, path: string): string {
  return [folder, path].join('/')
}

/** True when a link to `target` would lead back: to one of the folders on the way to it, or to one that holds them. */
export function leadsBack(target: string, wayToIt: readonly string[]): boolean {
  return wayToIt.some(folder => folder === target || isBelow(folder, target))
}

/** True when `path` is below `folder`. */
function isBelow(path: string, folder: string): boolean {
  return path.startsWith(folder === '/' ? folder : `${folder}/`)
}
