import t from 'tap'
import { followTabs } from './docs/follow-page.ts'
import { listPages } from './docs/pages.ts'

t.setTimeout(280_000)

followTabs(
  t,
  listPages().filter(page => page.startsWith('docs/handlers/')),
)
