"""The pages, a module for those of one subject; `acktrail_dashboard.web.application` lists them."""
