/** Whether a daemon elsewhere has the functions that the gateway has. Owner: page remote/daemon-server. */

import { escapeUnsafe } from '../core/text.ts'
import { findDifference, FolderReader, parseFolderContent } from '../files/folder-content.ts'

/**
 * @param root - functions root, full path
 * @param onDifference - told what differs first, once for each daemon and difference
 * @returns what is asked when a daemon is up; the promise is for tests
 */
export function createContentCheck(
  root: string,
  onDifference: (text: string) => void,
): (content: unknown, uri: string) => Promise<void> {
  const reader = new FolderReader(root)
  const told = new Map<string, string>()
  return async (content, uri) => {
    const there = parseFolderContent(content)
    const here = there === null ? null : await reader.read()
    if (there === null || here === null) return
    const difference = findDifference(here, there, `at ${uri}`)
    if (difference === null) told.delete(uri)
    else if (told.get(uri) !== difference) {
      told.set(uri, difference)
      const text = `the functions folder of the daemon at ${uri} is not the one of the gateway, ${root}: ${difference}`
      onDifference(escapeUnsafe(text))
    }
  }
}
