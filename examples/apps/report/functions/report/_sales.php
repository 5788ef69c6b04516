<?php
/**
 * Cents per product of an ISO week such as 2026-W47, the largest first.
 * @return array<string, int>
 */
function read_sales(string $week): array
{
    $file = fopen(__DIR__ . '/_sales.csv', 'r');
    fgetcsv($file, 0, ',', '"', '');
    $sales = [];
    while (($row = fgetcsv($file, 0, ',', '"', '')) !== false) {
        [$date, $product, $cents] = $row;
        // o and W, not Y and W: the last days of December may belong to week 1 of the next year.
        if (date('o-\WW', strtotime("$date 12:00 UTC")) === $week) {
            $sales[$product] = ($sales[$product] ?? 0) + (int) $cents;
        }
    }
    fclose($file);
    arsort($sales);
    return $sales;
}
