/** The test of a page: every block of code, from the first to the last. Owner: page docs. */

import type t from 'tap'
import { missingToolchain } from '../helpers/compiled.ts'
import { readDocBlocks } from './blocks.ts'
import { readPage } from './pages.ts'
import { DocSession } from './session.ts'

export async function followPage(test: typeof t, page: string): Promise<void> {
  const blocks = readDocBlocks(readPage(page))
  test.ok(blocks.length > 0)
  const languages = new Set(blocks.filter(({ isTab }) => isTab).map(({ language }) => language))
  for (const language of ['go', 'rust'] as const) {
    if (languages.has(language) && missingToolchain(language) !== null) languages.delete(language)
  }
  const session = new DocSession({ languages: [...languages] })
  test.teardown(() => session.end())
  for (const block of blocks) {
    const { failure, notRun } = await session.follow(block)
    if (failure !== undefined) test.fail(`${page}:${block.line}\n${failure}`)
    else test.pass(`${page}:${block.line}`)
    if (notRun !== undefined) test.comment(`${page}:${block.line} is not run: ${notRun}`)
  }
}
