"""One module a page; `acktrail_dashboard.web.site_map` lists them."""
