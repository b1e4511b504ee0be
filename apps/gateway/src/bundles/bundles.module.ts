import { Module } from '@nestjs/common';
import { type ArtifactStore, Uploads } from '@vmux/artifacts';
import type { Config } from '../config';
import { ARTIFACTS, CONFIG, UPLOADS } from '../tokens';
import { ArtifactsController } from './artifacts.controller';
import { BundlesController } from './bundles.controller';

@Module({
  controllers: [ArtifactsController, BundlesController],
  providers: [
    {
      provide: UPLOADS,
      inject: [ARTIFACTS, CONFIG],
      useFactory: (artifacts: ArtifactStore, { artifactsDir, dataDir }: Config) =>
        Uploads.of(artifactsDir, artifacts, dataDir),
    },
  ],
})
export class BundlesModule {}
