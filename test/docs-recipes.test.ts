import t from 'tap'
import { followPage } from './docs/follow-page.ts'
import { listPages } from './docs/pages.ts'

t.setTimeout(280_000)

// A file of their own, beside which the other guides are followed.
for (const page of listPages().filter(page => /^docs\/(from-|recipes\/)/.test(page)))
  t.test(`[docs.1, docs.2, docs.3] ${page} does what it says`, t => followPage(t, page))
