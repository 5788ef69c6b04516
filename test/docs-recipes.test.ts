import t from 'tap'
import { followPage } from './docs/follow-page.ts'
import { listPages } from './docs/pages.ts'

t.setTimeout(280_000)

/** Pages that need a server or packages: docs-servers.test.ts. */
const WITH_SERVER = /\/(mail|postgres|s3|sqlite|thumbnails)\.md$/

// A separate file, so that it runs beside the other guides.
for (const page of listPages().filter(page => /^docs\/(from-|recipes\/)/.test(page) && !WITH_SERVER.test(page)))
  t.test(`[docs.1, docs.2, docs.3] ${page} does what it says`, t => followPage(t, page))
