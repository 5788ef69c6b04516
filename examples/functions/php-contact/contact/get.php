<?php
// GET /contact: the form
require_once __DIR__ . '/_page.php';

function handler(array $event): array
{
    return html(200, page('Contact', form()));
}
