<?php

use Shop\Money;

/** @summary Price with tax, from a net price in cents */
function handler(array $event): array
{
    $net = filter_var($event['query']['net'] ?? '', FILTER_VALIDATE_INT, ['options' => ['min_range' => 0]]);
    $percent = filter_var($event['query']['vat'] ?? 19, FILTER_VALIDATE_INT, ['options' => ['min_range' => 0, 'max_range' => 100]]);
    if ($net === false || $percent === false) {
        return ['status' => 400, 'headers' => [], 'body' => ['error' => 'net is a number of cents, vat a number of percent']];
    }
    $price = new Money($net);
    $total = $price->withTax($percent);
    return ['net' => (string) $price, 'vat' => (string) $total->minus($price), 'total' => (string) $total];
}
