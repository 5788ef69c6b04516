/** How uPlot draws a chart of the console: colours of the theme, zero at the bottom, the same time axis in every chart, gaps where nothing is known. Owner: page console/overview. */

import uPlot from 'uplot'
import type { Row } from '../data/history.ts'
import { formatClock } from '../format.ts'

/** Colour of a line; red and amber only for what is failing. */
type Tone = 'accent' | 'text' | 'quiet' | 'failing' | 'degraded'

export interface ChartLine {
  readonly label: string
  readonly values: Row
  readonly tone: Tone
  /** Two lines differ by more than their colour. */
  readonly isDashed?: boolean
  readonly shape?: 'line' | 'steps' | 'bars'
  readonly format: (value: number | null) => string
  /** Counts: integers only. */
  readonly isWhole?: boolean
}

/** Pixels. */
export const CHART_HEIGHT = 160
const AXIS_WIDTH = 56
const PATTERN = [6, 4]
/** Steps of the time axis, seconds, and the pixels that a label takes: a range of 5 minutes, 1 h or 24 h has three labels or more. */
const TIMES = [60, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600]
const TIME_WIDTH = 40
/** Steps of an axis of counts. */
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000]

type Colours = Readonly<Record<Tone | 'line', string>>

function readColours(): Colours {
  const style = getComputedStyle(document.documentElement)
  const read = (name: string): string => style.getPropertyValue(`--${name}`).trim()
  return {
    accent: read('accent'),
    text: read('text'),
    quiet: read('quiet'),
    failing: read('failing'),
    degraded: read('degraded'),
    line: read('line'),
  }
}

/** Calls back when what is drawn has to be drawn in other colours. */
export function onThemeChange(listener: () => void): () => void {
  const contrast = window.matchMedia('(prefers-contrast: more)')
  window.addEventListener('fngw-theme', listener)
  contrast.addEventListener('change', listener)
  return () => {
    window.removeEventListener('fngw-theme', listener)
    contrast.removeEventListener('change', listener)
  }
}

/** @param share - of a step's width that a bar takes */
function toSeries({ label, tone, isDashed, shape }: ChartLine, colours: () => Colours, share: number): uPlot.Series {
  const paths =
    shape === 'bars'
      ? uPlot.paths.bars?.({ size: [share, 16 * share], align: 1 })
      : shape === 'steps'
        ? uPlot.paths.stepped?.({ align: 1 })
        : undefined
  const colour = (): string => colours()[tone]
  return {
    label,
    stroke: colour,
    width: tone === 'accent' ? 2 : 1.5,
    ...(isDashed === true && { dash: PATTERN }),
    ...(shape === 'bars' && { fill: colour, width: 0 }),
    ...(paths !== undefined && { paths }),
    points: { size: 5, width: 0, fill: colour, show: () => false, filter: shape === 'bars' ? () => null : toLonely },
  }
}

/** Values between two gaps are no line: each is drawn as a point. */
function toLonely({ data }: uPlot, index: number): number[] | null {
  const values = data[index] as (number | null)[]
  const isGap = (at: number): boolean => (values[at] ?? null) === null
  const lonely = values.flatMap((_, at) => (!isGap(at) && isGap(at - 1) && isGap(at + 1) ? [at] : []))
  return lonely.length === 0 ? null : lonely
}

/** The last step goes on to the right of its start. */
function toTimeRange({ data: [times] }: uPlot, first: number | null, last: number | null): [number, number] {
  const step = (times[1] ?? 1) - (times[0] ?? 0)
  return [first ?? 0, (last ?? 0) + step]
}

/** Zero at the bottom, and some air at the top; a chart of nothing but zeros has a height too. */
function toRange(_: uPlot, __: number, most: number | null): [number, number] {
  return [0, most === null || most <= 0 ? 1 : most * 1.1]
}

/** `repaint` reads the colours of the theme again. */
export function toOptions(lines: readonly ChartLine[], width: number): { options: uPlot.Options; repaint: () => void } {
  let colours = readColours()
  const [first] = lines
  const options: uPlot.Options = {
    width,
    height: CHART_HEIGHT,
    legend: { show: false },
    cursor: { sync: { key: 'time' }, drag: { x: false, y: false }, y: false, points: { size: 7 } },
    scales: { x: { range: toTimeRange }, y: { range: toRange } },
    // Bars of several lines stand one in the other.
    series: [{}, ...lines.map((line, index) => toSeries(line, () => colours, 0.7 - (index * 0.7) / lines.length))],
    axes: [
      {
        stroke: () => colours.quiet,
        font: '12px system-ui, sans-serif',
        grid: { show: false },
        ticks: { stroke: () => colours.line, width: 1, size: 4 },
        size: 28,
        space: TIME_WIDTH,
        incrs: TIMES,
        values: (_, splits) => splits.map(time => formatClock(time * 1000).slice(0, 5)),
      },
      {
        size: AXIS_WIDTH,
        stroke: () => colours.quiet,
        font: '12px system-ui, sans-serif',
        grid: { stroke: () => colours.line, width: 1 },
        ticks: { show: false },
        space: 36,
        values: (_, splits) => splits.map(value => first?.format(value) ?? ''),
        ...(first?.isWhole === true && { incrs: WHOLE }),
      },
    ],
  }
  return {
    options,
    repaint: () => {
      colours = readColours()
    },
  }
}
