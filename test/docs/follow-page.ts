/** The test of pages: every block of code, from the first to the last. Owner: page docs. */

import type { Test } from 'tap'
import { missingToolchain } from '../helpers/compiled.ts'
import { type DocBlock, readDocBlocks } from './blocks.ts'
import { readPage } from './pages.ts'
import { DocSession, type DocSessionOptions } from './session.ts'

/** Follows a page in a temporary folder. The gateway runs until the test ends. */
export async function followPage(t: Test, page: string, options: DocSessionOptions = {}): Promise<DocSession> {
  const session = new DocSession(options)
  t.teardown(() => session.end())
  await followBlocks(t, page, session)
  return session
}

/** Languages of the tabs of a page whose toolchain is installed. */
export function languagesOf(...pages: string[]): string[] {
  const tabs = pages.flatMap(page => readDocBlocks(readPage(page))).filter(({ isTab }) => isTab)
  const isMissing = (language: string): boolean =>
    (language === 'go' || language === 'rust') && missingToolchain(language) !== null
  return [...new Set(tabs.map(({ language }) => language))].filter(language => !isMissing(language))
}

/** Follows pages with tabs one after another in one folder, where one gateway serves the functions of every language. */
export function followTabs(t: Test, pages: readonly string[]): void {
  const session = new DocSession({ languages: languagesOf(...pages) })
  t.teardown(() => session.end())
  for (const page of pages)
    t.test(`[docs.1, docs.2, docs.15] ${page} does what it says, in each language of its tabs`, t =>
      followBlocks(t, page, session),
    )
}

/** @param isRustBuilt - false: functions in Rust are read, and not built */
export async function followBlocks(t: Test, page: string, session: DocSession): Promise<void> {
  const blocks: DocBlock[] = readDocBlocks(readPage(page))
  t.ok(blocks.length > 0)
  for (const block of blocks) {
    const { failure, notRun } = await session.follow(block)
    if (failure !== undefined) t.fail(`${page}:${block.line}\n${failure}`)
    else t.pass(`${page}:${block.line}`)
    if (notRun !== undefined) t.comment(`${page}:${block.line} is not run: ${notRun}`)
  }
}
