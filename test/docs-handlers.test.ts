import t from 'tap'
import { followPage } from './docs/follow-page.ts'
import { listPages } from './docs/pages.ts'

t.setTimeout(280_000)

for (const page of listPages().filter(page => page.startsWith('docs/handlers/')))
  t.test(`[docs.1, docs.2, docs.12] ${page} does what it says, in each language of its tabs`, t => followPage(t, page))
