/**
 * Lines over time, with a sentence that says the same. A gap is a step of which nothing is known. The arrow keys go through the steps.
 * Owner: page console/overview.
 */

import { useSignal } from '@preact/signals'
import { useEffect, useRef } from 'preact/hooks'
import uPlot from 'uplot'
import { formatClock } from '../format.ts'
import { CHART_HEIGHT, type ChartLine, onThemeChange, toOptions } from './chart-options.ts'

interface ChartProps {
  title: string
  /** Of the vertical axis. */
  unit: string
  /** Start of each step, seconds since the epoch. */
  times: readonly number[]
  /** Always the same ones, with other values and shapes. */
  lines: readonly ChartLine[]
  /** The whole in words. */
  summary: string
}

export function Chart({ title, unit, times, lines, summary }: ChartProps) {
  const box = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | null>(null)
  const chosen = useSignal<number | null>(null)
  const shapes = lines.map(({ shape }) => shape).join()
  useEffect(() => {
    const element = box.current as HTMLDivElement
    const { options, repaint } = toOptions(lines, element.clientWidth)
    const choose = (one: uPlot): void => {
      chosen.value = one.cursor.idx ?? null
    }
    const hooks = { setCursor: [choose] }
    const made = new uPlot({ ...options, hooks }, toData(times, lines), element)
    plot.current = made
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: CHART_HEIGHT }))
    observer.observe(element)
    const off = onThemeChange(() => {
      repaint()
      made.redraw()
    })
    return () => {
      observer.disconnect()
      off()
      made.destroy()
    }
  }, [shapes])
  useEffect(() => plot.current?.setData(toData(times, lines)), [times, lines])
  const isEmpty = lines.every(({ values }) => values.every(value => value === null))
  const onKeyDown = (event: KeyboardEvent): void => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key] ?? 0
    const made = plot.current
    if (step === 0 || made === null) return
    event.preventDefault()
    const next = Math.max(0, Math.min(times.length - 1, (chosen.value ?? times.length) + step))
    // As the pointer does: `setCursor` moves the crosshair of this chart alone.
    const { left, top } = made.over.getBoundingClientRect()
    const clientX = left + made.valToPos(times[next] as number, 'x')
    made.over.dispatchEvent(new MouseEvent('mousemove', { clientX, clientY: top + 1 }))
  }
  return (
    <figure class="chart">
      <div class="chart-head">
        <h2>{title}</h2>
        <Legend lines={lines} />
      </div>
      <p class="chart-unit">{unit}</p>
      <div
        class="chart-box"
        ref={box}
        role="img"
        aria-label={`${title}: ${summary}`}
        // The arrow keys go through the steps.
        // biome-ignore lint/a11y/noNoninteractiveTabindex: see above
        tabIndex={0}
        onKeyDown={onKeyDown}
      >
        {isEmpty && <p class="chart-empty">No data</p>}
      </div>
      {/* The summary changes with every step: only a value chosen by keys is announced. */}
      <figcaption aria-live={chosen.value === null ? 'off' : 'polite'}>
        {chosen.value === null ? summary : toStepText(times, lines, chosen.value)}
      </figcaption>
    </figure>
  )
}

function toData(times: readonly number[], lines: readonly ChartLine[]): uPlot.AlignedData {
  return [[...times], ...lines.map(({ values }) => [...values])]
}

/** One step in words: "14:03:20: p50 3 ms, p95 8 ms". */
function toStepText(times: readonly number[], lines: readonly ChartLine[], index: number): string {
  const values = lines.map(line => `${line.label} ${line.format(line.values[index] ?? null)}`)
  return `${formatClock((times[index] ?? 0) * 1000)}: ${values.join(', ')}`
}

function Legend({ lines }: { lines: readonly ChartLine[] }) {
  if (lines.length < 2) return null
  return (
    <span class="legend">
      {lines.map(({ label, tone, isDashed }) => (
        <span key={label}>
          <svg width="20" height="8" aria-hidden="true" data-tone={tone}>
            <path d="M0 4h20" stroke-dasharray={isDashed === true ? '6 4' : undefined} />
          </svg>
          {label}
        </span>
      ))}
    </span>
  )
}
