/** Jobs: all of them, or one. Owner: page console/jobs. */

import { Page } from '../parts/page.tsx'
import { query } from '../router.ts'
import { JobList } from './jobs/job-list.tsx'
import { JobPage } from './jobs/job-page.tsx'

export function JobsPage() {
  const id = query.value.get('id') ?? ''
  return (
    <Page title={id === '' ? 'Jobs' : `Job ${id}`} question="What runs, and what ran?">
      {id === '' ? <JobList /> : <JobPage id={id} key={id} />}
    </Page>
  )
}
