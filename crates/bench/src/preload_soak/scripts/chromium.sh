# Headless Chromium printing a page to PDF. Identical are the rendered pixels; the file holds the time of day. Its sandbox refuses root, and
# drops what LD_PRELOAD says.
run() {
    with chromium --headless --disable-gpu --no-first-run --disable-background-networking --disable-component-update \
        --no-pdf-header-footer --no-sandbox "--user-data-dir=$PWD/profile" "--print-to-pdf=$PWD/page.pdf" "file://$SOURCES/page.html"
}

# The script's table alone fills more than one page, and white paper has one value.
check() {
    pdftoppm -r 60 page.pdf page
    pages=$(ls page*.ppm | wc -l)
    ink=$(cat page*.ppm | LC_ALL=C tr -d '\200-\377' | wc -c)
    [ "$pages" -ge 2 ] && [ "$ink" -ge 10000 ] || fail "$pages pages, $ink dark bytes"
    cat page*.ppm
}
