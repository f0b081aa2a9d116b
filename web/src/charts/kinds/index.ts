// The picture of each kind of query.
import type { Picture, PictureQuery } from "../picture";
import { funnelsPicture } from "./funnels";
import { lifecyclePicture, pathsPicture, retentionPicture, stickinessPicture } from "./others";
import { trendsPicture } from "./trends";

/** Null for kinds without a picture, and for results that are not there. `now` decides whether the last period has ended. */
export function buildPicture(query: PictureQuery, results: unknown, now = Date.now()): Picture | null {
  if (results === null || results === undefined) return null;
  const list = results as never;
  switch (query.kind) {
    case "TrendsQuery": return trendsPicture(list, query, now);
    case "FunnelsQuery": return funnelsPicture(results, query);
    case "RetentionQuery": return retentionPicture(list);
    case "LifecycleQuery": return lifecyclePicture(list);
    case "StickinessQuery": return stickinessPicture(list);
    case "PathsQuery": return pathsPicture(list, query);
    default: return null;
  }
}
