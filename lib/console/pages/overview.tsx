/** Overview. Owner: page console/overview. */

import { useHistory } from '../data/history.ts'
import { HistoryCharts } from '../parts/history-charts.tsx'
import { LoadState } from '../parts/load-state.tsx'
import { Page } from '../parts/page.tsx'
import { currentRange, RangeChoice } from '../parts/range-choice.tsx'

export function OverviewPage() {
  const history = useHistory(currentRange().window)
  return (
    <Page title="Overview" question="Is it healthy, and what changed?" tools={<RangeChoice />}>
      <LoadState loaded={history} />
      {history.data !== null && <HistoryCharts history={history.data} />}
    </Page>
  )
}
