/** Schedules. Owner: page console/console. */

import { Page } from '../parts/page.tsx'

export function SchedulerPage() {
  return (
    <Page title="Schedules" question="What will run, and when?">
      {null}
    </Page>
  )
}
