/** Logs. Owner: page console/console. */

import { Page } from '../parts/page.tsx'

export function LogsPage() {
  return (
    <Page title="Logs" question="What happened?">
      {null}
    </Page>
  )
}
